"""HTTP server: many clients share the models on one device. Needs the extra `transduce[serve]`."""
