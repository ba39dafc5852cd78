#include "io/aside_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace ladder::io {

namespace fs = std::filesystem;

AsideFile::AsideFile(fs::path path)
    : path_(std::move(path)), aside_(fmt::format("{}.{}.partial", path_.string(), ::getpid())) {
  descriptor_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
}

AsideFile::~AsideFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(aside_.c_str());
}

void AsideFile::append(const void* bytes, std::size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AsideFile::commit() {
  if (::fsync(descriptor_) != 0) fail(errno);
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0 || ::rename(aside_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside_.c_str());
    fail(error);
  }
  const fs::path folder = path_.parent_path();
  sync_folder(folder.empty() ? "." : folder);
}

void AsideFile::fail(int error) const {
  throw Failure(fmt::format("'{}' was not written: {}", path_.string(), std::strerror(error)));
}

void write_text(const fs::path& path, std::string_view text) {
  AsideFile out(path);
  out.append(text.data(), text.size());
  out.commit();
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // EINVAL: a file system that has no such thing to do.
  const bool synced = descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) throw Failure(fmt::format("folder '{}' was not flushed: {}", folder.string(), std::strerror(error)));
}

}  // namespace ladder::io
