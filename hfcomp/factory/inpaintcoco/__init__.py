"""InpaintCOCO (Rösch et al. 2024, section 4), built from an annotation project or from the published dataset."""
