"""Classes of texts and images: task, front end of images, metric, public class, command."""
