#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

namespace heddle::testing {

/// The text of the heddle::Error that `call` throws, or "no error".
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// Expects `run` to throw heddle::Error of the code whose text is one line that holds every part.
template <class Run>
void expect_error(ErrorCode code, std::initializer_list<const char*> parts, const Run& run) {
  try {
    run();
    ADD_FAILURE() << "expected an error with " << *parts.begin();
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(e.code(), code) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    for (const char* part : parts)
      EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
  }
}
template <class Run>
void expect_invalid(std::initializer_list<const char*> parts, const Run& run) {
  expect_error(ErrorCode::kInvalidArgument, parts, run);
}
template <class Run>
void expect_unsupported(std::initializer_list<const char*> parts, const Run& run) {
  expect_error(ErrorCode::kUnsupported, parts, run);
}

}  // namespace heddle::testing
