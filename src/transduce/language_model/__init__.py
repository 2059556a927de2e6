"""Language models: task, generation of text, public class, commands."""
