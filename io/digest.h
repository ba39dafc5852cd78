// A 128-bit digest (XXH3) of bytes that come in pieces: finds damage, withstands no forger.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace ladder::io {

class Digest {
 public:
  Digest();
  ~Digest();

  void add(const void* bytes, std::size_t size);
  std::string hex() const;  // 32 hexadecimal digits, of all that was added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ladder::io
