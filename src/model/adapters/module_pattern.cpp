#include "model/adapters/module_pattern.h"

#include <algorithm>
#include <cctype>
#include <new>

#include <pcre2.h>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

constexpr size_t kMaxExpression = 4096;  // bytes
// What most expressions stay below with a name of some 40 bytes. PCRE2 tells only whether a match
// stayed below a limit, so one that did not is tried again with four times as much.
constexpr uint32_t kFewSteps = 128;
constexpr uint32_t kMaxHeapKiB = 1024;

struct Free {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
template <class T>
using Pcre2Pointer = std::unique_ptr<T, Free>;

template <class T>
Pcre2Pointer<T> own(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return Pcre2Pointer<T>(pointer);
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

/// What pcre2_match says.
int match(const pcre2_code& code, std::string_view text, uint32_t max_steps) {
  const auto limits = own(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(limits.get(), max_steps);
  pcre2_set_heap_limit(limits.get(), kMaxHeapKiB);
  const auto result = own(pcre2_match_data_create_from_pattern(&code, nullptr));
  return pcre2_match(&code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                     result.get(), limits.get());
}

bool is_plain(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

struct ModulePattern::Code {
  Pcre2Pointer<pcre2_code> code;
};

ModulePattern ModulePattern::ending(std::string key, const std::string& context) {
  ModulePattern pattern(std::move(key), context);
  // Most keys are names, and a fleet's configuration may hold one for every module.
  if (!is_plain(pattern.key_)) pattern.compile("^(?:(.*\\.)?(" + pattern.key_ + ")$)");
  return pattern;
}

ModulePattern ModulePattern::whole(const std::string& expression, const std::string& context) {
  ModulePattern pattern(expression, context);
  pattern.compile("^(?:" + expression + ")\\z");
  return pattern;
}

ModulePattern ModulePattern::numbered(const std::string& key, const std::string& context) {
  ModulePattern pattern(key, context);
  pattern.compile("^(?:(?:^|.*?\\.)" + key + "\\.\\d+\\.)");
  return pattern;
}

void ModulePattern::compile(const std::string& expression) {
  HEDDLE_CHECK(expression.size() <= kMaxExpression, context_, " has an expression of ",
               expression.size(), " bytes, at most ", kMaxExpression, " are read");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  HEDDLE_CHECK(code != nullptr, context_, " has ", files::quote(key_),
               ", which is not a valid regular expression: ", message_of(error));
  code_ = std::make_shared<Code>(Code{own(code)});
}

bool ModulePattern::matches(std::string_view module, MatchSteps& steps) const {
  if (code_ == nullptr) {
    // (.*\.)?(key)$ for a key in which only the dot, any character to an expression, is special.
    if (module.size() < key_.size()) return false;
    const size_t begin = module.size() - key_.size();
    if (begin > 0 && module[begin - 1] != '.') return false;
    return std::equal(key_.begin(), key_.end(), module.begin() + static_cast<ptrdiff_t>(begin),
                      [](char want, char got) { return want == '.' || want == got; });
  }
  for (uint32_t few = kFewSteps; steps.left() > 0; few *= 4) {
    const uint32_t limit = std::min(few, steps.left());
    steps.spend(limit);
    const int status = match(*code_->code, module, limit);
    if (status == PCRE2_ERROR_MATCHLIMIT) continue;
    HEDDLE_CHECK(status >= 0 || status == PCRE2_ERROR_NOMATCH, context_, ": matching ",
                 files::quote(key_), " against ", files::quote(module),
                 " failed: ", message_of(status));
    return status >= 0;
  }
  throw_error(ErrorCode::kInvalidArgument, context_, ": matching ", files::quote(key_), " against ",
              files::quote(module), " failed: match limit exceeded: a field may take ",
              MatchSteps::kMax, " steps for a module");
}

}  // namespace heddle::model
