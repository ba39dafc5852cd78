#include "io/digest.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // no library to link
#include <xxhash.h>

namespace ladder::io {

struct Digest::State {
  XXH3_state_t xxh3;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }

Digest::~Digest() = default;

void Digest::add(const void* bytes, std::size_t size) { XXH3_128bits_update(&state_->xxh3, bytes, size); }

std::string Digest::hex() const {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state_->xxh3));
  std::string digits;
  for (const unsigned char byte : digest.digest) digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace ladder::io
