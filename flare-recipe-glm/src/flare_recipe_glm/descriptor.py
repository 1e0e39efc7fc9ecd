"""What this package prepares, and where its weights come from."""

from __future__ import annotations

from flare.recipes import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor

DESCRIPTOR = RecipeDescriptor(
    name="glm",
    title="GLM 5.3 Flash, a hybrid model with sparse latent attention, hyper-connections and routed experts",
    api_version=RECIPE_API_VERSION,
    models=(
        ModelEntry(
            name="glm-5.3-flash",
            checkpoint="hf://zai-org/GLM-5.3-Flash@eb9eb208eb0d988989d07a6a12d0fdeb5f52574a",  # FP8
            published="flare_recipe_glm:published.json",
            license="MIT",
            alternatives=(
                "hf://zai-org/GLM-5.3-Flash-BF16@a5b45eb41df6402735dedc900be14a42e8d5e538",
                "hf://RedHatAI/GLM-5.3-Flash-NVFP4@18d55bfd5a2194887738da73753975c9d3842f46",
                "hf://local-inference-lab/GLM-5.3-Flash-NVFP4@378ca54585c46542bad1f3cb3ed0d73ae51cdb62",
            ),
        ),
    ),
    architectures=("Glm5NextForConditionalGeneration",),
    recipe="flare_recipe_glm.recipe:RECIPE",
)
