"""How does an image get here, and stay here if the pull is cut?"""
