#include "http/buffers.h"

#include <algorithm>
#include <utility>

namespace heddle::serve {

Buffers::Holder::Holder(Buffers& buffers, std::function<void()> give_up)
    : buffers_(buffers), give_up_(std::move(give_up)) {}

Buffers::Holder::~Holder() { let_go(); }

bool Buffers::Holder::hold(int64_t num_bytes) {
  const bool is_more = num_bytes > num_bytes_;
  buffers_.num_bytes_ += num_bytes - num_bytes_;
  num_bytes_ = num_bytes;
  if (num_bytes == 0) {
    buffers_.holders_.erase(this);
    return true;
  }
  buffers_.holders_.insert(this);
  while (is_more && buffers_.is_full()) {
    Holder* const largest = *std::ranges::max_element(
        buffers_.holders_, {}, [](const Holder* each) { return each->num_bytes_; });
    if (largest->num_bytes_ <= kLittle) break;
    ++buffers_.num_given_up_;
    largest->let_go();
    if (largest == this) return false;
    largest->give_up_();
  }
  return true;
}

}  // namespace heddle::serve
