"""What training needs of tool use: its environment, the terms of its reward, demonstrations."""
