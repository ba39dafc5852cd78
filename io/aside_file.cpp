#include "io/aside_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace ladder::io {

namespace fs = std::filesystem;

AsideFile::AsideFile(fs::path path) : path_(std::move(path)) {
  struct stat found {
  }, output{};
  const bool exists = ::stat(path_.c_str(), &found) == 0;
  if (!exists && errno != ENOENT) fail(std::strerror(errno));
  if (exists && ::fstat(STDOUT_FILENO, &output) == 0 && found.st_dev == output.st_dev &&
      found.st_ino == output.st_ino) {
    std::fflush(stdout);
    descriptor_ = ::dup(STDOUT_FILENO);
  } else if (exists && (S_ISCHR(found.st_mode) || S_ISFIFO(found.st_mode))) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else if (exists && !S_ISREG(found.st_mode)) {
    const char* kind = S_ISDIR(found.st_mode) ? "a folder" : "a block device or a socket";
    fail(fmt::format("it is {}: name a file to be written", kind));
  } else {
    while (fs::is_symlink(path_)) path_ = path_.parent_path() / fs::read_symlink(path_);
    aside_ = fmt::format("{}.{}.partial", path_.string(), ::getpid());
    descriptor_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (descriptor_ < 0) fail(std::strerror(errno));
}

AsideFile::~AsideFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void AsideFile::append(const void* bytes, std::size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(std::strerror(errno));
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AsideFile::commit() {
  if (!aside_.empty() && ::fsync(descriptor_) != 0) fail(std::strerror(errno));
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0 || (!aside_.empty() && ::rename(aside_.c_str(), path_.c_str()) != 0)) {
    const int error = errno;
    if (!aside_.empty()) ::unlink(aside_.c_str());
    fail(std::strerror(error));
  }
  if (aside_.empty()) return;
  const fs::path folder = path_.parent_path();
  sync_folder(folder.empty() ? "." : folder);
}

void AsideFile::fail(const std::string& reason) const {
  throw Failure(fmt::format("'{}' was not written: {}", path_.string(), reason));
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
