// Refused: asks for fopen
#include <cstdio>

namespace ladder {

void remember(const char* answer) {
  if (std::FILE* const file = std::fopen("answer", "w")) std::fputs(answer, file);
}

}  // namespace ladder
