"""Speech to text: sound, front end, task, metric, public class, command."""
