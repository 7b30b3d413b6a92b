"""nvcr.io: who may pull (credentials), how it asks (challenge), what it has (client: tags, manifests, config blobs)."""
