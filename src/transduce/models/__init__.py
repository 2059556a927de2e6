"""Models, built from the parts in `nn`, and the folders that store them."""
