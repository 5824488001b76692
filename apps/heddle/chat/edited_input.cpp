#include <algorithm>
#include <cstdio>
#include <cwchar>
#include <optional>
#include <string_view>
#include <unistd.h>

#include <histedit.h>

#include "heddle/core/error.h"

#include "chat/history.h"
#include "chat/input.h"

namespace heddle::app {
namespace {

constexpr char kEscape = '\1';  // encloses what takes no room on the screen
constexpr int kHistorySize = 2000;

/// Lines by libedit. It handles no signals itself: its reader of characters waits for either.
class EditedInput : public ChatInput {
 public:
  EditedInput(const ChatSignals& signals, EditedInputOptions options);
  ~EditedInput() override;
  EditedInput(const EditedInput&) = delete;
  EditedInput& operator=(const EditedInput&) = delete;

  ChatRead read(const std::string& prompt, std::string& line) override;
  [[nodiscard]] int signal() const override { return signal_; }

 private:
  static EditedInput& of(EditLine* editor);
  static char* prompt_of(EditLine* editor) { return of(editor).prompt_.data(); }
  static int read_character(EditLine* editor, wchar_t* character);
  static unsigned char complete_word(EditLine* editor, int key);

  bool meet_signals();
  int next_character(wchar_t& character);
  unsigned char complete();
  void load_history();
  void keep(const std::string& line);

  const ChatSignals& signals_;
  EditedInputOptions options_;
  EditLine* editor_;
  History* history_;
  std::optional<ChatHistory> kept_;  // nothing: lines are not kept
  std::string prompt_;
  int signal_ = 0;  // that ended the last line
  bool was_empty_ = true;
};

EditedInput::EditedInput(const ChatSignals& signals, EditedInputOptions options)
    : signals_(signals),
      options_(std::move(options)),
      editor_(el_init("heddle", stdin, stderr, stderr)),
      history_(history_init()) {
  HEDDLE_CHECK(editor_ != nullptr && history_ != nullptr,
               "chat: cannot edit lines on this terminal");
  load_history();
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_SIGNAL, 0);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_PROMPT_ESC, &EditedInput::prompt_of, kEscape);
  el_set(editor_, EL_ADDFN, "heddle-complete", "Completes commands and names of adapters",
         &EditedInput::complete_word);
  el_set(editor_, EL_BIND, "^I", "heddle-complete", nullptr);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor_, nullptr);  // ~/.editrc
  el_wset(editor_, EL_GETCFN, &EditedInput::read_character);
}

EditedInput::~EditedInput() {
  history_end(history_);
  el_end(editor_);
}

EditedInput& EditedInput::of(EditLine* editor) {
  void* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  return *static_cast<EditedInput*>(self);
}

void EditedInput::load_history() {
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistorySize);
  history(history_, &event, H_SETUNIQUE, 1);  // of equal neighbours, one
  if (options_.history_path.empty()) return;
  kept_.emplace(options_.history_path);
  for (const std::string& line : kept_->lines()) history(history_, &event, H_ENTER, line.c_str());
}

void EditedInput::keep(const std::string& line) {
  HistEvent event;
  history(history_, &event, H_ENTER, line.c_str());
  if (!kept_ || (!kept_->lines().empty() && kept_->lines().back() == line)) return;
  try {
    kept_->add(line);
  } catch (const Error& error) {
    kept_.reset();
    options_.warn(error.what());
  }
}

ChatRead EditedInput::read(const std::string& prompt, std::string& line) {
  const std::string_view begin = options_.colour ? "\1\033[1;32m\1" : "";
  const std::string_view end = options_.colour ? "\1\033[0m\1" : "";
  prompt_ = std::string(begin) + prompt + std::string(end) + " ";
  signal_ = 0;
  was_empty_ = true;
  el_set(editor_, EL_PREP_TERM, 1);  // before the prompt: what is typed then would be echoed twice
  int length = 0;
  const char* text = el_gets(editor_, &length);
  if (signal_ == SIGINT) {
    std::fputs("^C\n", stderr);
    return was_empty_ ? ChatRead::kInterrupted : ChatRead::kDropped;
  }
  if (signal_ != 0 || text == nullptr || length <= 0) {
    std::fputs("\n", stderr);
    return signal_ != 0 ? ChatRead::kSignal : ChatRead::kEnd;
  }
  line.assign(text, static_cast<size_t>(length));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  const size_t last = line.find_last_not_of(" \t");
  if (last != std::string::npos) keep(line.substr(0, last + 1));
  return ChatRead::kLine;
}

/// Meets the signals that have arrived; returns false if the line is to end.
bool EditedInput::meet_signals() {
  for (int signal = signals_.take(); signal != 0; signal = signals_.take()) {
    if (signal == SIGINT || ends_program(signal)) {
      const LineInfo* line = el_line(editor_);
      was_empty_ = line->lastchar == line->buffer;
      signal_ = signal;
      return false;
    }
    if (signal == SIGTSTP) {
      el_set(editor_, EL_PREP_TERM, 0);
      signals_.suspend();
      el_set(editor_, EL_PREP_TERM, 1);
    }
    el_resize(editor_);
    el_set(editor_, EL_REFRESH);
  }
  return true;
}

/// Reads one character of the locale's encoding; returns as read() does. What is no character is
/// left out.
int EditedInput::next_character(wchar_t& character) {
  std::mbstate_t state = {};
  for (;;) {
    while (!signals_.wait_for_input(STDIN_FILENO)) {
      if (!meet_signals()) return -1;
    }
    char byte = 0;
    const ssize_t num_read = ::read(STDIN_FILENO, &byte, 1);
    if (num_read <= 0) return static_cast<int>(num_read);
    const size_t length = std::mbrtowc(&character, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // its beginning
    if (length != static_cast<size_t>(-1)) return 1;
    state = {};
  }
}

int EditedInput::read_character(EditLine* editor, wchar_t* character) {
  return of(editor).next_character(*character);
}

/// Adds what all candidates share; where that is nothing, shows them.
unsigned char EditedInput::complete() {
  const LineInfo* line = el_line(editor_);
  const std::string begin(line->buffer, line->cursor);
  const std::vector<std::string> candidates = options_.complete(begin);
  if (candidates.empty()) return CC_REFRESH_BEEP;
  std::string shared = candidates.front();
  for (const std::string& candidate : candidates) {
    const auto end = std::ranges::mismatch(shared, candidate).in1;
    shared.erase(end, shared.end());
  }
  if (candidates.size() == 1) shared += " ";
  if (shared.size() > begin.size()) {
    return el_insertstr(editor_, shared.substr(begin.size()).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }
  std::string list = "\n";
  for (const std::string& candidate : candidates) {
    list += candidate.substr(candidate.find_last_of(" ,") + 1) + "  ";
  }
  std::fputs((list + "\n").c_str(), stderr);
  return CC_REDISPLAY;
}

unsigned char EditedInput::complete_word(EditLine* editor, int /*key*/) {
  return of(editor).complete();
}

}  // namespace

std::unique_ptr<ChatInput> make_edited_input(const ChatSignals& signals,
                                             EditedInputOptions options) {
  return std::make_unique<EditedInput>(signals, std::move(options));
}

}  // namespace heddle::app
