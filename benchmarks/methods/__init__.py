"""What unlearning methods cost."""
