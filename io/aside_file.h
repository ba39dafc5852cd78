// A file that takes its name only when it is complete and on the disk: written beside that name, flushed, renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ladder::io {

// An existing file of the name stays intact until commit(), whatever happens: an exception, a full disk, a crash. Every
// member throws Failure naming the file and the system's reason, after which nothing of the new file is left. A
// symbolic link stays, and the file that it names is replaced. A character device, a FIFO and standard output are
// written through, at once; a folder, a block device and a socket are refused.
class AsideFile {
 public:
  explicit AsideFile(std::filesystem::path path);  // its folder must be there
  ~AsideFile();                                    // removes what was not committed
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;

  void append(const void* bytes, std::size_t size);
  void commit();  // once, last

 private:
  [[noreturn]] void fail(const std::string& reason) const;

  std::filesystem::path path_;
  std::filesystem::path aside_;  // "<path>.<process>.partial", which a killed process leaves; empty: written through
  int descriptor_ = -1;          // -1: closed
};

// Write a file that consists of `text`, by way of an AsideFile.
void write_text(const std::filesystem::path& path, std::string_view text);

// Flush the names of a folder to the disk: of files made, renamed and removed in it. Throws Failure.
void sync_folder(const std::filesystem::path& folder);

}  // namespace ladder::io
