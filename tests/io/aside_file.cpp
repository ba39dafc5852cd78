// Files that are written aside: which names they take, and which kinds of file are written through or refused.
#include "io/aside_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <future>

#include "core/error.h"
#include "tests/files.h"

namespace ladder::io {
namespace {

namespace fs = std::filesystem;
using test::contents;
using test::count_in;
using test::has;
using test::message_of;
using test::put;
using test::Scratch;

TEST(AsideFile, ALinkStaysAndItsFileIsReplaced) {
  const Scratch scratch;
  fs::create_directory(scratch / "far");
  put(scratch / "far" / "file", "old");
  fs::create_symlink("far/file", scratch / "near");
  fs::create_symlink(scratch / "near", scratch / "link");
  fs::create_symlink("far/new", scratch / "dangling");
  write_text(scratch / "link", "new");
  write_text(scratch / "dangling", "first");
  for (const char* link : {"near", "link", "dangling"}) EXPECT_TRUE(fs::is_symlink(scratch / link)) << link;
  EXPECT_EQ(contents(scratch / "far" / "file"), "new");
  EXPECT_EQ(contents(scratch / "far" / "new"), "first");
  EXPECT_EQ(count_in(scratch / "far"), 2);
  fs::create_symlink("loop", scratch / "loop");
  EXPECT_TRUE(has(message_of<Failure>([&] { write_text(scratch / "loop", ""); }), "symbolic links"));
}

TEST(AsideFile, AFifoIsWrittenThrough) {
  const Scratch scratch;
  const fs::path fifo = scratch / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&] { return contents(fifo); });
  const std::string text(1 << 20, 'x');  // more than a pipe holds
  write_text(fifo, text);
  EXPECT_EQ(read.get(), text);
  EXPECT_TRUE(fs::is_fifo(fifo));
  EXPECT_EQ(count_in(scratch.path()), 1);
}

// Nodes of its own for the null device and for the full one.
TEST(AsideFile, ACharacterDeviceIsWrittenThrough) {
  const Scratch scratch;
  const fs::path null = scratch / "null", full = scratch / "full";
  if (mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
      mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0 || access(null.c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no device can be made here";
  }
  write_text(null, "away");
  EXPECT_TRUE(has(message_of<Failure>([&] { write_text(full, "text"); }), "full' was not written: No space left"));
  EXPECT_TRUE(fs::is_character_file(null) && fs::is_character_file(full));
  EXPECT_EQ(count_in(scratch.path()), 2);
}

TEST(AsideFile, StandardOutputIsWrittenBetweenWhatIsPrinted) {
  const Scratch scratch;
  const fs::path file = scratch / "file";
  for (const std::string& name : {std::string("/dev/stdout"), file.string()}) {
    const test::Ended ended = test::run_function([&] {
      if (!std::freopen(file.c_str(), "w", stdout)) return 2;
      std::printf("before\n");
      write_text(name, "text\n");
      std::printf("after\n");
      return std::fflush(stdout) == 0 ? 0 : 3;
    });
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(contents(file), "before\ntext\nafter\n") << name;
    EXPECT_EQ(count_in(scratch.path()), 1);
  }
}

TEST(AsideFile, FoldersAndSocketsAreRefused) {
  const Scratch scratch;
  fs::create_directory(scratch / "folder");
  const std::string folder = message_of<Failure>([&] { write_text(scratch / "folder", ""); });
  EXPECT_TRUE(has(folder, "folder' was not written: it is a folder: name a file to be written"));

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (scratch / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(
      has(message_of<Failure>([&] { write_text(scratch / "socket", ""); }), "it is a block device or a socket"));
  EXPECT_TRUE(fs::is_socket(scratch / "socket"));
  close(listener);
  EXPECT_EQ(count_in(scratch.path()), 2);
}

// Nothing opens the node: its kind alone is looked at.
TEST(AsideFile, ABlockDeviceIsRefused) {
  const Scratch scratch;
  const fs::path block = scratch / "block";
  if (mknod(block.c_str(), S_IFBLK | 0600, makedev(240, 240)) != 0) GTEST_SKIP() << "no device can be made here";
  EXPECT_TRUE(has(message_of<Failure>([&] { write_text(block, ""); }), "it is a block device or a socket"));
  EXPECT_TRUE(fs::is_block_file(block));
  EXPECT_EQ(count_in(scratch.path()), 1);
}

}  // namespace
}  // namespace ladder::io
