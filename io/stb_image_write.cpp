// stb's PNG writer, a source of its own: nothing of it is in the way of what reads ours.
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#include <stb_image_write.h>
