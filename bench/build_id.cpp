#include "bench/build_id.h"

#include <fmt/format.h>
#include <link.h>

#include <cstring>

namespace ladder {
namespace {

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

// A note is its header, its name and its payload, each padded to four bytes (elf(5)).
void read_notes(const char* note_ptr, const char* end, std::string& id) {
  while (note_ptr + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, note_ptr, sizeof(note));
    const char* name = note_ptr + sizeof(note);
    const char* payload = name + aligned(note.n_namesz);
    if (payload + note.n_descsz > end) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      id.clear();
      for (std::size_t i = 0; i < note.n_descsz; ++i)
        id += fmt::format("{:02x}", static_cast<unsigned char>(payload[i]));
      return;
    }
    note_ptr = payload + aligned(note.n_descsz);
  }
}

int read_first_object(dl_phdr_info* object, std::size_t, void* id) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as numbers
    const char* begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    read_notes(begin, begin + segment.p_memsz, *static_cast<std::string*>(id));
  }
  return 1;  // the program comes first, its libraries after it
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(read_first_object, &id);
  return id;
}

}  // namespace ladder
