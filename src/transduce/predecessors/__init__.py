"""What came before the Transformer: recurrent and convolutional models, other forms of attention."""
