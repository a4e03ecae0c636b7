--- What keys and commands decide about the hunks proposed in the current buffer.
local M = {}

---@param how "decide_one"|"decide_all"
---@param verb midspan.Verb
---@return boolean decided
local function decide(how, verb)
  local is_decided = require("midspan.preview")[how](vim.api.nvim_get_current_buf(), verb)
  if not is_decided then
    vim.notify("Midspan: nothing is proposed in this buffer")
  end
  return is_decided
end

---@param how "decide_one"|"decide_all"
---@return boolean decided
local function reject(how)
  -- What is still being made has no hunks yet: not wanting it means withdrawing the request.
  return require("midspan.edit").cancel(vim.api.nvim_get_current_buf()) or decide(how, "reject")
end

--- Accepts the hunk at the cursor, else the next one.
function M.accept()
  return decide("decide_one", "accept")
end

--- Accepts all hunks, in one undo step.
function M.accept_all()
  return decide("decide_all", "accept")
end

--- Rejects the hunk at the cursor, else the next one; withdraws an edit that is still being made.
function M.reject()
  return reject("decide_one")
end

--- Rejects all hunks; withdraws an edit that is still being made.
function M.reject_all()
  return reject("decide_all")
end

--- Goes to the next hunk.
function M.next()
  require("midspan.preview").move(vim.api.nvim_get_current_buf(), 1)
end

--- Goes to the previous hunk.
function M.prev()
  require("midspan.preview").move(vim.api.nvim_get_current_buf(), -1)
end

return M
