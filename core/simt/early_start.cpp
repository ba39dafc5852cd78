#include "core/simt/early_start.h"

#include <mutex>
#include <set>
#include <utility>

namespace ladder::simt {

namespace {

thread_local Stream current_stream = nullptr;

struct EarlyStreams {
  std::mutex mutex;
  std::set<Stream> all;
};

EarlyStreams& early_streams() {
  static EarlyStreams& streams = *new EarlyStreams;  // never destroyed: work may run after main()
  return streams;
}

}  // namespace

void run_on(Stream stream, const std::function<void()>& work) {
  struct Restore {
    Stream previous;
    ~Restore() { current_stream = previous; }
  } const restore{std::exchange(current_stream, stream)};
  work();
}

bool started_early() {
  EarlyStreams& streams = early_streams();
  const std::lock_guard lock(streams.mutex);
  return streams.all.contains(current_stream);
}

void note_early_start(bool early) {
  EarlyStreams& streams = early_streams();
  const std::lock_guard lock(streams.mutex);
  if (early) {
    streams.all.insert(current_stream);
  } else {
    streams.all.erase(current_stream);
  }
}

}  // namespace ladder::simt
