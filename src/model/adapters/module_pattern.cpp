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
// A match of an honest expression against a name of some 40 bytes takes hundreds of steps.
constexpr uint32_t kMaxSteps = 20000;
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
               ", which is no regular expression: ", message_of(error));
  code_ = std::make_shared<Code>(Code{own(code)});
}

bool ModulePattern::matches(std::string_view module) const {
  if (code_ == nullptr) {
    // (.*\.)?(key)$ for a key in which only the dot, any character to an expression, is special.
    if (module.size() < key_.size()) return false;
    const size_t begin = module.size() - key_.size();
    if (begin > 0 && module[begin - 1] != '.') return false;
    return std::equal(key_.begin(), key_.end(), module.begin() + static_cast<ptrdiff_t>(begin),
                      [](char want, char got) { return want == '.' || want == got; });
  }
  const auto limits = own(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(limits.get(), kMaxSteps);
  pcre2_set_heap_limit(limits.get(), kMaxHeapKiB);
  const auto result = own(pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
  const int status = pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()),
                                 module.size(), 0, 0, result.get(), limits.get());
  HEDDLE_CHECK(status >= 0 || status == PCRE2_ERROR_NOMATCH, context_, ": matching ",
               files::quote(key_), " against ", files::quote(module),
               " failed: ", message_of(status));
  return status >= 0;
}

}  // namespace heddle::model
