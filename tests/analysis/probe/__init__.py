"""The probe of the gradient."""
