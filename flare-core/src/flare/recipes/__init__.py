"""Hook specifications, descriptors and discovery of recipe packages. Imports without torch."""
