"""What this package prepares, and where its weights come from."""

from __future__ import annotations

from flare.recipes import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor

DESCRIPTOR = RecipeDescriptor(
    name="qwen",
    title="Qwen3.8 Flash, a hybrid model with sparse attention, n-gram tables and routed experts",
    api_version=RECIPE_API_VERSION,
    models=(
        ModelEntry(
            name="qwen3.8-flash",
            checkpoint=(
                "hf://local-inference-lab/Qwen3.8-Flash-Next-NVFP4-MXFP8-CSF-QAD"
                "@dc5b8ab2fa14bc4fecd6886273b7ebc6095662e2"
            ),
            published="flare_recipe_qwen:published.json",
            license="LicenseRef-model-card",
            alternatives=("hf://Qwen/Qwen3.8-Flash-Next@main", "hf://Qwen/Qwen3.8-Flash-Next-FP8@main"),
        ),
    ),
    architectures=(
        "Qwen4ExpForConditionalGeneration",
        "Qwen4ExpForCausalLM",
        "Qwen3_8FlashNextForConditionalGeneration",
    ),
    recipe="flare_recipe_qwen.recipe:RECIPE",
)
