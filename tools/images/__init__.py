"""A folder of pictures, or a font's emoji, as one file of equal images for the trainer.

This runs in the private Python, which has Pillow; cli/prepare.py, which starts it, in any.
"""
