--- Gives a value decoded from JSON, where null is vim.NIL, as Lua has it: nil for null.
---@param value any
---@return any
return function(value)
  return value ~= vim.NIL and value or nil
end
