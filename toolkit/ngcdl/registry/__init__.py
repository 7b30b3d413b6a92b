"""nvcr.io: who may pull (credentials), how it asks for a sign-in (challenge), what it has (client)."""
