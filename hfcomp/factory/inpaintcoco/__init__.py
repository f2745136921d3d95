"""InpaintCOCO (Rösch et al. 2024, section 4): an annotation project, or the published set, as a dataset."""
