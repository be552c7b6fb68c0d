"""A server under load: who sends requests, what is compared, and kills."""
