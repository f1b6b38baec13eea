"""What unlearning costs."""
