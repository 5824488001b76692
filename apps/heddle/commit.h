#pragma once

namespace heddle::app {

/// The commit that this build is of: 12 digits, and a '+' where files of git had changed since;
/// "unknown" where it was built without a repository. The source is written by
/// cmake/heddle_commit.cmake, alone in its library: another commit compiles nothing else.
[[nodiscard]] const char* commit();

}  // namespace heddle::app
