"""A model over HTTP: many clients, one device. Needs the extra `transduce[serve]`."""
