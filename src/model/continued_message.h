#pragma once

#include <string>

#include "files/json.h"

namespace heddle::model {

/// The last message of a conversation, whose text the answer goes on with. Its end is marked before
/// the template renders it, and found by the mark: the text alone may be empty, in another message,
/// or changed by the template. As transformers' apply_chat_template does it.
class ContinuedMessage {
 public:
  /// Appends `mark` and a space to the message's content or, of parts, its last text. `mark` has
  /// no spaces. Throws Error where there is no such text.
  ContinuedMessage(files::Json& messages, std::string mark);

  /// Removes the mark and what the template wrote after it; spaces before it, too, where the
  /// template strips the content. Throws Error where the text does not have the whole message.
  void end_text(std::string& rendered) const;

 private:
  std::string mark_, content_;
};

}  // namespace heddle::model
