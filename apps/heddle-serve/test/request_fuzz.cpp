// Any bytes as the body of each route that takes one: they are read, or refused by an error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/lorax.h"
#include "api/openai_form.h"
#include "api/openai_request.h"
#include "api/tokenize.h"
#include "messages/form.h"
#include "messages/request.h"
#include "responses/form.h"
#include "responses/request.h"

namespace heddle::serve {
namespace {

/// What the refusal says is a response of its own, and valid JSON.
void try_to(const auto& read) {
  try {
    read();
  } catch (const ApiError& error) {
    if (openai_error(error).body.empty() || lorax_error(error).body.empty()) __builtin_trap();
    if (anthropic_error(error).body.empty()) __builtin_trap();
  } catch (const Error& error) {
    if (openai_error(bad_request(error.what())).body.empty()) __builtin_trap();
  }
}

/// A stream of a short answer.
void run(AnswerForm& form) {
  Completion completion;
  completion.text = "ab";
  const std::string begin = form.begin();
  Event event{.text = "ab", .completion = completion};
  if (begin.empty() || form.added(0, event).empty()) __builtin_trap();
  if (form.end({&completion, 1}).empty()) __builtin_trap();
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
  try_to([&] { (void)read_detokenize(body, options); });
  try_to([&] {
    ResponseStore store(1, 1 << 20);
    store.put("r",
              {.owner = "o", .response = "{}", .messages = R"([{"role":"user","content":""}])"});
    ResponsesRequest request = read_responses(body, options, store, size % 5 == 0 ? "o" : "other");
    run(*responses_form(std::move(request), "resp_1", "model", {}));
  });
  try_to([&] { run(*messages_form(read_messages_request(body, options), "msg_1", "model")); });
  try_to([&] { (void)read_count_request(body, options); });
  return 0;
}
