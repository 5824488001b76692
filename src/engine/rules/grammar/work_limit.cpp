#include "engine/rules/grammar/work_limit.h"

#include <ctime>
#include <malloc.h>
#include <new>
#include <sstream>

namespace heddle::grammar {
namespace {

constexpr uint32_t kCallsPerLook = 64;  // at the clock, which is a system call

thread_local LimitedWork* current = nullptr;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string sentence(LimitPassed::Kind kind, const WorkLimit& limit) {
  std::ostringstream text;
  if (kind == LimitPassed::Kind::kTime) {
    text << "the format is too complex: it takes more than " << limit.seconds
         << " s of processor time";
  } else {
    text << "the format is too complex: it takes more than " << (limit.num_bytes >> 20)
         << " MiB of memory";
  }
  return text.str();
}

}  // namespace

LimitPassed::LimitPassed(Kind kind, const WorkLimit& limit)
    : Error(ErrorCode::kInvalidArgument, sentence(kind, limit)), kind_(kind) {}

LimitedWork::LimitedWork(const WorkLimit& limit)
    : limit_(limit), end_(thread_seconds() + limit.seconds) {
  current = this;
}

LimitedWork::~LimitedWork() { current = nullptr; }

double LimitedWork::seconds() const { return thread_seconds() - (end_ - limit_.seconds); }

void LimitedWork::check(size_t num_more) {
  if (num_bytes_ + static_cast<int64_t>(num_more) > limit_.num_bytes)
    throw LimitPassed(LimitPassed::Kind::kMemory, limit_);
  if (++num_calls_ % kCallsPerLook == 0 && thread_seconds() > end_) {
    throw LimitPassed(LimitPassed::Kind::kTime, limit_);
  }
}

void* allocate(size_t size) {
  if (current != nullptr) current->check(size);
  void* const place = ::operator new(size);
  if (current != nullptr) current->num_bytes_ += static_cast<int64_t>(malloc_usable_size(place));
  return place;
}

void deallocate(void* place) noexcept {
  if (current != nullptr && place != nullptr) {
    current->num_bytes_ -= static_cast<int64_t>(malloc_usable_size(place));
  }
  ::operator delete(place);
}

}  // namespace heddle::grammar

// The names that the objects of the grammar library have for operator new and delete.
extern "C" {
void* heddle_grammar_new(size_t size) { return heddle::grammar::allocate(size); }
void* heddle_grammar_new_array(size_t size) { return heddle::grammar::allocate(size); }
void heddle_grammar_delete(void* place) { heddle::grammar::deallocate(place); }
void heddle_grammar_delete_array(void* place) { heddle::grammar::deallocate(place); }
void heddle_grammar_delete_sized(void* place, size_t /*size*/) {
  heddle::grammar::deallocate(place);
}
void heddle_grammar_delete_array_sized(void* place, size_t /*size*/) {
  heddle::grammar::deallocate(place);
}
}
