#pragma once

#include <fstream>
#include <string>
#include <unordered_set>

#include "generate/row.h"

namespace heddle::app {

/// The file of --resume: answers of earlier runs, to which those of this run are appended. It is
/// locked while the object lives.
class ResumeFile {
 public:
  /// Opens or makes the file and reads what it answers. Throws Error, and leaves the file as it is,
  /// when another program has it or a line of it is no answer.
  explicit ResumeFile(std::string path);
  /// Removes the file if it was made and nothing was appended.
  ~ResumeFile();
  ResumeFile(const ResumeFile&) = delete;
  ResumeFile& operator=(const ResumeFile&) = delete;

  /// Whether the file has the row's answer: one without an error, with the row's id, or its index
  /// where it has no id, and with the same hash (Fingerprint).
  [[nodiscard]] bool answers(const Row& row, const std::string& hash) const;

  /// Cuts off a last line that is not whole, and gives the stream that appends. Once.
  [[nodiscard]] std::ofstream& append();

 private:
  void read();

  std::string path_, made_;  // made_: the file itself, where it is new
  int fd_;
  bool is_new_ = false;
  int64_t whole_bytes_ = 0;                   // of all lines but a torn last one
  bool lacks_newline_ = false;                // the last line is whole but for that
  std::unordered_set<std::string> answered_;  // "id or index, hash"
  std::ofstream stream_;
};

}  // namespace heddle::app
