#include "chat/conversation.h"

#include "answer_options.h"

namespace heddle::app {

Request Conversation::ask(const std::string& prompt, const std::string& adapter) const {
  Request request;
  if (system_) request.messages.push_back({"system", *system_});
  request.messages.insert(request.messages.end(), turns_.begin(), turns_.end());
  request.messages.push_back({"user", prompt});
  request.adapter = adapter;
  set_answer_options(options_, request);
  request.sampling.seed = static_cast<int64_t>(static_cast<uint64_t>(options_.sampling.seed) +
                                               static_cast<uint64_t>(num_answers_));
  return request;
}

void Conversation::add_turn(const std::string& prompt, const std::string& answer) {
  turns_.push_back({"user", prompt});
  turns_.push_back({"assistant", answer});
  ++num_answers_;
}

std::optional<std::string> Conversation::take_last_question() {
  if (turns_.empty()) return std::nullopt;
  turns_.pop_back();
  std::string question = std::move(turns_.back().content);
  turns_.pop_back();
  return question;
}

void Conversation::reset() {
  turns_.clear();
  num_answers_ = 0;
}

}  // namespace heddle::app
