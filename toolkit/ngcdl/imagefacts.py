"""What an image is, asked of its registry in a few KB, remembered by digest; where it can't be asked, the catalogue."""
