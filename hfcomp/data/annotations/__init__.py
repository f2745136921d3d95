"""What people decide about images that are repainted in a mask, and what such an image has to be."""
