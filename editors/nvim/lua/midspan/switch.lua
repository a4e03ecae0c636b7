--- Whether suggestions are wanted: everywhere (`vim.g.midspan_enabled`) and in a buffer (`vim.b.midspan_enabled`).
local M = {}

---@param value any unset means on; Vim script's 0 means off
---@return boolean
local function is_set(value)
  return value ~= false and value ~= 0
end

--- Says whether suggestions are switched on.
---@param bufnr? integer without one: everywhere
---@return boolean
function M.is_on(bufnr)
  return is_set(vim.g.midspan_enabled) and (not bufnr or is_set(vim.b[bufnr].midspan_enabled))
end

--- Switches suggestions the other way, everywhere or in one buffer only.
---@param bufnr? integer
---@return string message what holds now
function M.toggle(bufnr)
  local variables = bufnr and vim.b[bufnr] or vim.g
  variables.midspan_enabled = not is_set(variables.midspan_enabled)
  local state = variables.midspan_enabled and "on" or "off"
  if not bufnr then
    return "suggestions " .. state
  end
  local note = variables.midspan_enabled and not M.is_on() and ", but off everywhere (:Midspan toggle)" or ""
  return ("suggestions %s in this buffer%s"):format(state, note)
end

return M
