"""`hfcomp annotate`: visual challenge sets with people in the loop (Rösch et al. 2024)."""
