// Any bytes as the body of each route that takes one: they are read, or refused by an error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/lorax.h"
#include "api/openai_form.h"
#include "api/openai_request.h"

namespace heddle::serve {
namespace {

/// What the refusal says is a response of its own, and valid JSON.
void try_to(const auto& read) {
  try {
    read();
  } catch (const ApiError& error) {
    if (openai_error(error).body.empty() || lorax_error(error).body.empty()) __builtin_trap();
  } catch (const Error& error) {
    if (openai_error(bad_request(error.what())).body.empty()) __builtin_trap();
  }
}

}  // namespace
}  // namespace heddle::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::serve;
  const std::string body(reinterpret_cast<const char*>(data), size);
  heddle::app::ServeOptions options;
  options.allow_request_templates = size % 2 == 0;
  options.ignore_unknown_fields = size % 3 == 0;
  try_to([&] { (void)chat_form(read_chat(body, options), "id", "model")->begin(); });
  try_to([&] { (void)completion_form(read_completion(body, options), "id", "model")->begin(); });
  try_to([&] { (void)lorax_form(read_lorax(body, options), false)->begin(); });
  try_to([&] { (void)read_tokenize(body, options); });
  return 0;
}
