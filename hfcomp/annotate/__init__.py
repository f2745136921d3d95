"""`hfcomp annotate`: visual challenge sets with a person in the loop (Rösch et al. 2024)."""
