"""A translator as a folder of files: a page that runs the model in the browser, without a server."""
