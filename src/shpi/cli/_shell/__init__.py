"""What a shell needs of a program: pipes that break, advice that can be typed, completion."""
